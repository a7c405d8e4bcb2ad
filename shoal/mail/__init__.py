"""The post, which is the only way from one agent to another: what letters (`shoal.letters`) may leave, and what becomes
of them.

`filters` are what an edge lets pass, and whether any has carried too much; `post` is the way from agent to agent:
`dispatch` what may leave, `carriage` what becomes of it on its way and when it is there, `judgement` what a receiver
accepts. `policy` and `privacy` keep what sites let out, `lies` are told by those that are said to.
"""
