"""Speed and memory of the learners, measured as ratios in one run: `make bench`."""
