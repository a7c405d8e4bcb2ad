"""A folder of images: `hospital/split/class/*.png`, where three hospitals learn the digits they have, alone.

The folder is made here, of the digits that come with shoal; with images of your own, this is all that is left:

    data = shoal.Data.from_folder("images", "{agent}/{split}/{class}/*.png")

PNG and JPEG need `pip install "shoal[images]"`; without it, this example writes `.npy` files.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import shoal
from shoal.data import load

digits = load("digits")
end = "png" if find_spec("PIL") else "npy"
with tempfile.TemporaryDirectory() as folder:
    for at in range(450):
        split = "test" if at % 15 < 3 else "train"
        file = Path(folder, f"hospital {at % 3}", split, str(digits.labels[at]), f"{at}.{end}")
        file.parent.mkdir(parents=True, exist_ok=True)
        if end == "npy":
            np.save(file, digits.images[at])
        else:
            from PIL import Image

            Image.fromarray(digits.images[at] * 15).save(file)
    data = shoal.Data.from_folder(folder, "{agent}/{split}/{class}/*." + end)
    fleet = shoal.Fleet(data, model="mlp", learner={"epochs": 30, "rate": 0.005})
    print(fleet.run(seeds=2))
