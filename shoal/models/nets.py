"""Settings that nets have beside those of all (`shoal.settings.groups.Net`): a class for each kind of net, which its
line in the table of models names."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from shoal.settings.groups import Net


class ModularNet(Net):
    """Nets whose tasks compose modules."""

    shaped: ClassVar[tuple[str, ...]] = (*Net.shaped, "basis")

    basis: PositiveInt = Field(4, description="modules at the start (modular nets); atoms of a dictionary (factor)")
    dropout_basis: bool = Field(False, description="does dropout also act on the basis modules?")
    initial_structure: Literal["onehot", "own"] = Field(
        "onehot", description="initial tasks use a random module at each depth, or task i module i at all depths"
    )


class PlainNet(Net):
    """Nets of layers alone, all of which train."""

    weights: Literal["usual", "xavier"] = Field(
        "usual", description="first weights: uniform within 1/sqrt(inputs), or Glorot's for ReLU with no bias"
    )


class FactorNet(Net):
    """Predictors in a dictionary."""

    shaped: ClassVar[tuple[str, ...]] = ("basis",)

    basis: PositiveInt = Field(4, description="modules at the start (modular nets); atoms of a dictionary (factor)")
    private: NonNegativeInt = Field(0, description="atoms that an agent never sends, beside those that agents share")


class RidgeNet(Net):
    """Linear predictors that are solved for."""

    shaped: ClassVar[tuple[str, ...]] = ("projections",)

    projections: NonNegativeInt = Field(
        0,
        description="random projections of a row, cut off below zero, that predictors read instead of it; 0: the row",
    )


class OwnNet(Net):
    """Any net of one's own."""

    replace_last: bool = Field(False, description="put heads in the place of the last linear layer, which gave classes")


class AdaptedNet(OwnNet):
    """Nets that nobody trains, with parts that are added to every weight."""

    shaped: ClassVar[tuple[str, ...]] = (*Net.shaped, "rank", "factors")

    rank: PositiveInt = Field(4, description="rank of what is added to every weight")
    alpha: PositiveFloat = Field(8.0, description="how much it counts: alpha / rank times the product")
    factors: Literal["both", "second"] = Field(
        "both",
        description="which of the two factors train and are shared: both, or the second alone, so that a mean of them "
        "is the mean of what they add (FFA-LoRA)",
    )


class ModularAdaptedNet(AdaptedNet, ModularNet):
    """Nets whose tasks compose such parts."""

    shaped: ClassVar[tuple[str, ...]] = (*ModularNet.shaped, "rank", "factors")
