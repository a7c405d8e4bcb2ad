"""Studies: runs that belong together (`cells`, several of them `beside` each other), differences paired over seeds
(`paired`), runs side by side (`compare`), grids and their Pareto front (`sweep`), and what to share (`advise`). What
may enter: settings, and directories of finished runs."""
