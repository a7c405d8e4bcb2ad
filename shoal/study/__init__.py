"""Studies: what runs are worth (`metrics`), and runs side by side (`paired`, `compare`, `sweep`, `transfer`)."""
