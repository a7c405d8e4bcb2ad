"""Models: one-agent functions over plain dictionaries of tensors; the engine maps them over lanes.

`contract` says what a model is, `table` has MODELS, `nets` what can be set of each. `monolithic` and `modular` nets are
made of `blocks` (`mlp`, `cnn`); `wrapped` makes a model of any `nn.Module`; `heads` are affine, one per task; `dropout`
draws masks from bits.
"""
