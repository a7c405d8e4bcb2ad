"""What scores promise and what modules deliver: `measure`, and the `picture` of it."""
