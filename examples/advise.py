"""What should a small fleet share, if a link may carry 8 kB in a task?"""

import shoal

words = ["agents=3", "tasks.count=6", "learner.epochs=16", "network=ring", "machine.threads=1"]
settings = shoal.read("digits", words)
advice = shoal.advise(settings, budget="8 kB/task", candidates=["simp", "modmod", "fedavg"], seeds=2)
print(advice)
print(advice.table.select("rank", "candidate", "price", "final_accuracy", "gain", "p"))
