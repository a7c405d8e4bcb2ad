"""Hello fleet: agents on a ring learn handwritten digits, with a few images from their neighbours and without."""

import shoal

fleet = shoal.Fleet(
    "digits",
    model="mlp",
    sharing={"mode": "recv", "every": 5, "queries": 10},
    network=shoal.ring(4),
    tasks={"count": 4, "classes": 3, "train": 6, "validation": 6, "initial": 1},
    net={"width": 32, "depth": 2, "dropout": 0.2},
    learner={"epochs": 12, "batch": 18, "rate": 5e-3, "memory": 6},
)
print(fleet.check())  # the cost, before anything runs
result = fleet.run(seeds=3)
print(result)
print(shoal.compare(result, fleet.alone().run(seeds=3)))
