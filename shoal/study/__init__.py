"""Studies: what runs are worth (`metrics`, a table), differences paired over seeds (`paired`), runs side by side
(`compare`), grids and their Pareto front (`sweep`), and what scores of modules promise and deliver (`transfer`). What
may enter: settings, and directories of finished runs."""
