"""Settings: what a run is, as frozen values.

`groups` has the groups of settings and `Settings` itself, `conditions`, `policies` and `safety` more of them; `part` is
what they are made of, and `asking` makes settings of what a function asks for. `protocols` fill in what the user did
not say; `writing` writes settings, `problem` says when two runs mean the same. What a user says becomes settings in
`shoal.configure`.
"""
