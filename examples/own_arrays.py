"""Arrays of your own: five sites with streams of different lengths, that send each other images of what they look for.

Every row says whose it is (`agent`) and to which task it belongs (`task`); sites have 3 to 6 tasks of 2 to 4 classes
and 20 to 200 rows. Nothing else has to be said: the data itself says how many agents and tasks there are.
"""

import numpy as np

import shoal

rng = np.random.default_rng(0)
x, y, site, task = [], [], [], []
for one, tasks in enumerate((3, 4, 5, 6, 3)):
    for at in range(tasks):
        classes = rng.choice(6, 2 + (one + at) % 3, replace=False)
        labels = np.resize(classes, (20, 60, 200)[(one + at) % 3])
        x.append(np.eye(6)[labels] + rng.normal(0, 0.4, (len(labels), 6)))
        y.append(labels)
        site += [f"site {one}"] * len(labels)
        task += [at] * len(labels)

data = shoal.Data.from_arrays(np.concatenate(x), np.concatenate(y), agent=site, task=task)
learner = {"epochs": 20, "rate": 0.01}
fleet = shoal.Fleet(data, model="mlp", learner=learner, sharing={"mode": "recv", "every": 5}, network="ring")
print(fleet.check())  # the cost, before anything runs
print(fleet.run(seeds=2))
