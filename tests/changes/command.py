"""A command."""


def murmur(word: str) -> None:
    """Say something softly."""
    print(f"psst, {word}")
