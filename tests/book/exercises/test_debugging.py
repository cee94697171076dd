"""The answers that the test of every check feeds to those of the page on debugging."""

import copy

import torch
from torch import nn

from normlab.book.exercises import debugging as exercises


def score(model, x, y):
    return (model(x).argmax(1) == y).float().mean() > 0.9


def diagnose(model, x, y):
    look = copy.deepcopy(model).eval()
    if score(look, x, y):
        return "mode" if model.training else "nothing"
    return "buffers" if score(look.train(), x, y) else "weights"


def start_epoch(model, backbone):
    model.train()
    backbone.requires_grad_(False).eval()
    return model


def groups(model, decay, *, exchanged=False):
    decayed = [m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    rest = [p for p in model.parameters() if all(p is not q for q in decayed)]
    decays = (0.0, decay) if exchanged else (decay, 0.0)
    return [{"params": p, "weight_decay": d} for p, d in zip((decayed, rest), decays, strict=True)]


def put_back(model, x, y):
    state, mode = copy.deepcopy(model.state_dict()), model.training
    found = {on: score(model.train(on), x, y) for on in (False, True)}
    model.load_state_dict(state)
    model.train(mode)
    if found[False]:
        return "mode" if mode else "nothing"
    return "buffers" if found[True] else "weights"


def epoch_by_parts(model, backbone):
    for module in model.modules():
        module.training = module not in set(backbone.modules())
    for p in backbone.parameters():
        p.requires_grad = False
    return model


def groups_by_module(model, decay):
    """Named, as torch takes them too."""
    kept = nn.LayerNorm | nn.RMSNorm
    named = [(n, p, m) for m in model.modules() for n, p in m.named_parameters(recurse=False)]
    still = [(n, p) for n, p, m in named if n == "bias" or isinstance(m, kept)]
    moved = [(n, p) for n, p, m in named if n != "bias" and not isinstance(m, kept)]
    return ({"params": still, "weight_decay": 0}, {"params": moved, "weight_decay": decay})


RIGHT = {
    "check_diagnosis": diagnose,
    "check_start_epoch": start_epoch,
    "check_decay_groups": groups,
}


def moving(model, x, y):
    if score(model.eval(), x, y):
        return "nothing"
    right = score(model.train(), x, y)
    model.eval()
    return "buffers" if right else "weights"


def left_in_training(model, x, y):
    if score(model, x, y):
        return "nothing"
    return "buffers" if score(copy.deepcopy(model.train()), x, y) else "weights"


def without_batch(model, x, y):
    if model.training:
        return "mode"
    return "nothing" if score(model, x, y) else "weights"


def without_mode(model, x, y):
    if score(copy.deepcopy(model), x, y):
        return "nothing"
    return diagnose(model, x, y)


def sound_buffers(model, x, y):
    right = copy.deepcopy(model).eval()(x).argmax(1) == y
    if right.float().mean() > 0.9:
        return diagnose(model, x, y)
    return "buffers"


def finite_only(model, x, y):
    if any(not b.isfinite().all() for b in model.buffers()):
        return "weights"
    return diagnose(model, x, y)


def optimist(model, x, y):
    return "mode" if model.training else "nothing"


def epoch(*, train=True, freeze=True, evaluate=True, undo=False, whole=False):
    def start(model, backbone):
        if train:
            model.train()
        if freeze:
            (model if whole else backbone).requires_grad_(False)
        if evaluate:
            backbone.eval()
        if undo:
            model.train()
        return model

    return start


def without_tracking(model, backbone):
    model.train()
    backbone.requires_grad_(False)
    backbone[1].track_running_stats = False
    return model


def evaluating(model, backbone):
    backbone.requires_grad_(False)
    return model.eval()


def by(choose, *, rest=True, decay_of=lambda decay: decay, undecayed=0.0):
    def divide(model, decay):
        named = dict(model.named_parameters())
        first = [p for name, p in named.items() if choose(name, p)]
        second = [p for name, p in named.items() if not choose(name, p)]
        decayed = [{"params": first, "weight_decay": decay_of(decay)}]
        other = {"params": second} | ({} if undecayed is None else {"weight_decay": undecayed})
        return decayed + [other] * rest

    return divide


def but_rms(model, decay):
    kept = nn.LayerNorm | nn.BatchNorm2d
    norms = [p for m in model.modules() if isinstance(m, kept) for p in m.parameters()]
    ids = {id(p) for p in norms} | {id(p) for n, p in model.named_parameters() if "bias" in n}
    return by(lambda _, p: id(p) not in ids)(model, decay)


def is_matrix(_, p):
    return p.dim() > 1


def is_weight(name, _):
    return "weight" in name


OTHER = {
    "check_diagnosis": put_back,
    "check_start_epoch": epoch_by_parts,
    "check_decay_groups": groups_by_module,
}
ONE_SIZE = {"check_diagnosis": "which state is wrong has nothing to do with sizes"}
WRONG = {
    "check_diagnosis": {
        "it moves": (moving, "moved the running statistics"),
        "another mode": (left_in_training, "left in another mode"),
        "no batch": (without_batch, "so the weights are fine"),
        "no mode": (without_mode, "look at the mode first"),
        "buffers": (sound_buffers, "buffers are not to blame"),
        "finite only": (finite_only, "NaN in the buffers is no fault"),
        "optimist": (optimist, "no better than guessing"),
        "always buffers": (lambda model, x, y: "buffers", "nothing is wrong with it"),
        "another word": (lambda model, x, y: "optimizer", "that is not it"),
    },
    "check_start_epoch": {
        "eval alone": (epoch(freeze=False), "eval() does not stop the optimizer"),
        "frozen alone": (epoch(evaluate=False), "requires_grad=False does not stop them"),
        "train() last": (epoch(undo=True), "after train() on the model"),
        "train() alone": (epoch(freeze=False, evaluate=False), "trained with the rest"),
        "no train()": (epoch(train=False), "its dropout is off"),
        "all in evaluation": (evaluating, "its dropout is off"),
        "the head, too": (epoch(whole=True), "the head does not learn"),
        "no return": (
            lambda model, backbone: start_epoch(model, backbone) and None,
            "return the model",
        ),
        "no tracking": (without_tracking, "normalizes by the batch"),
    },
    "check_decay_groups": {
        "axes": (by(is_matrix), "not for the number of axes"),
        "names": (by(is_weight), "no name says"),
        "all": (by(lambda name, p: True), "everything decays"),
        "none": (by(lambda name, p: False), "nothing decays"),
        "biases": (by(lambda name, p: name[0] != "1"), "biases are not to decay"),
        "a rest without group": (by(is_matrix, rest=False), "in no group"),
        "twice": (lambda model, decay: groups(model, decay) * 2, "in two groups"),
        "AdamW's decay": (by(is_matrix, undecayed=None), "AdamW's own"),
        "another decay": (by(is_matrix, decay_of=lambda decay: 0.1), "neither"),
        "exchanged": (lambda model, decay: groups(model, decay, exchanged=True), "exchanged"),
        "RMS norm forgotten": (but_rms, "an RMS norm is a norm"),
        "one bias": (by(lambda name, p: name == "0.bias"), "other parameters decay"),
    },
}


def test_groups_as_torch_takes_them():
    def each(model, decay):
        two = groups(model, decay)
        return [g | {"params": p} for g in two for p in g["params"]]

    assert exercises.check_decay_groups(each) == "right"


def test_grading_leaves_the_random_stream_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert exercises.check_diagnosis(diagnose) == "right"
    assert exercises.check_start_epoch(start_epoch) == "right"
    assert exercises.check_decay_groups(groups) == "right"
    assert torch.equal(state, torch.get_rng_state())
