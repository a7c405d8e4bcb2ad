"""Class-incremental: every task brings new classes, for one head that grows. Tested, an image may be of any class so
far; an agent that keeps no images forgets the classes of earlier tasks."""

import shoal

fleet = shoal.Fleet(
    "digits",
    model="mlp",
    agents=2,
    tasks={"scenario": "split", "heads": "grow", "count": 5, "classes": 2, "train": 40, "validation": 10, "initial": 1},
    net={"width": 32, "depth": 2},
    learner={"epochs": 10, "batch": 16, "rate": 5e-3, "memory": 20},
)
for name, images in {"replay": 20, "fine-tuning": 0}.items():
    result = fleet.but(learner={"memory": images}).run()
    final, lost = result.summary.select("final_accuracy", "forgetting").row(0)
    print(f"{name}: {final:.1f} % over all classes at the end, {lost:.1f} points forgotten")
