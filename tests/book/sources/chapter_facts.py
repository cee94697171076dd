"""What the chapter on torch's source says of torch 2.13.0, each with the section that says it."""

from __future__ import annotations

import asking_torch as ask
from asking_torch import Fact
from torch.nn import functional as F

from normlab.book.sources import locate, locate_header, read_operator

__all__ = ["FACTS"]

NATIVE = "aten/src/ATen/native"
MOMENTS = "ATen/native/cpu/moments_utils.h"
NESTED = ("NestedTensorCPU", "NestedTensorHPU", "NestedTensorCUDA")
KERNEL = "layer_norm_kernel.cpp"
LINES = """var_mean = var_mean(x, (1), correction=0, keepdim=True)
getitem = var_mean[0]
getitem_1 = var_mean[1]
add = add(getitem, 1e-05)
rsqrt = rsqrt(add)
sub_1 = sub(x, getitem_1)
mul_2 = mul(sub_1, rsqrt)
mul_3 = mul(dy, w)
mul_4 = mul(mul_3, 6)
sum_1 = sum(mul_3, (1), True)
mul_5 = mul(mul_3, mul_2)
sum_2 = sum(mul_5, (1), True)
mul_6 = mul(mul_2, sum_2)
sub_2 = sub(mul_4, sum_1)
sub_3 = sub(sub_2, mul_6)
div = div(rsqrt, 6)
mul_7 = mul(div, sub_3)
mul_8 = mul(dy, mul_2)
sum_3 = sum(mul_8, (0))
sum_4 = sum(dy, (0))
return (mul_7, sum_3, sum_4)"""

SCHEMAS = {
    "native_layer_norm": "input normalized_shape weight bias eps",
    "native_layer_norm_backward": (
        "grad_out input normalized_shape mean rstd weight bias output_mask"
    ),
    "layer_norm": "input normalized_shape weight bias eps cudnn_enable",
    "_fused_rms_norm": "input normalized_shape weight eps",
}
KERNELS = {
    ("dispatch", "native_layer_norm"): {
        "CPU": "layer_norm_cpu",
        "CUDA": "layer_norm_cuda",
        "MPS": "layer_norm_mps",
        "CompositeExplicitAutograd": "math_native_layer_norm",
        **dict.fromkeys(NESTED, "nested_layer_norm"),
    },
    ("dispatch", "native_layer_norm_backward"): {
        "CPU": "layer_norm_backward_cpu",
        "CUDA": "layer_norm_backward_cuda",
        "MPS": "layer_norm_backward_mps",
        **dict.fromkeys(NESTED, "layer_norm_backward_nested"),
    },
    ("rms", "_fused_rms_norm"): {
        "CUDA": "_fused_rms_norm_cuda",
        "MPS": "_fused_rms_norm_mps",
        "XPU": "_fused_rms_norm_xpu",
        "CompositeImplicitAutograd": "rms_norm_composite",
    },
    ("rms", "_fused_rms_norm_backward"): {
        "CUDA": "_fused_rms_norm_backward_cuda",
        "XPU": "_fused_rms_norm_backward_xpu",
    },
    ("batch", "native_batch_norm"): {
        "CPU": "batch_norm_cpu",
        "CUDA": "batch_norm_cuda",
        "MPS": "batch_norm_mps",
        "MkldnnCPU": "mkldnn_batch_norm",
    },
    ("group", "native_group_norm"): {
        **dict.fromkeys(("CPU", "CUDA", "MPS"), "native_group_norm"),
        "CompositeExplicitAutograd": "math_group_norm",
    },
}
REGISTERED = {
    ("native_layer_norm", "CPU"): "kernel",
    ("native_layer_norm", "XLA"): "default backend kernel",
    ("layer_norm", "AutocastCUDA"): "kernel",
    ("batch_norm", "AutocastCUDA"): "backend fallback",
}
FORMULAS = {
    ("backward", "native_layer_norm", "input, weight, bias"): "bdb337b63b9b",
    ("backward", "native_layer_norm", "result0"): "9856a7a415c7",
    (
        "undocumented",
        "native_layer_norm_backward",
        "input, weight, grad_out",
    ): "7584f4dc5b77",
    ("rms", "_fused_rms_norm", "input, weight"): "24d4fc9d191d",
    ("batch", "native_batch_norm", "input, weight, bias"): "b7ac756ad145",
    ("group", "native_group_norm", "input, weight, bias"): "106ffe3d4b26",
}
OPERATIONS = {
    ("path", "layer_norm"): "native_layer_norm",
    ("rms", "rms_norm"): "pow mean add_ rsqrt mul mul",
    ("batch", "batch_norm"): "empty native_batch_norm",
    ("group", "group_norm"): "native_group_norm",
    ("batch", "instance_norm"): "repeat repeat view empty native_batch_norm view",
}
COMPILED = {
    "layer_norm_cpu": "layer_norm.cpp",
    "layer_norm_backward_cpu": "layer_norm.cpp",
    "math_native_layer_norm": "layer_norm.cpp",
    "rms_norm_composite": "layer_norm.cpp",
    "layer_norm_with_mean_rstd_out": None,
    "LayerNormBackwardKernel": "",
    "LayerNormKernelImpl": f"{KERNEL}.AVX2.cpp {KERNEL}.DEFAULT.cpp",
    "LayerNormKernelImplInternal": f"{KERNEL}.AVX2.cpp {KERNEL}.DEFAULT.cpp",
    "LayerNormSecondPass": f"{KERNEL}.DEFAULT.cpp",
    "LayerNormBackwardKernelImpl": f"{KERNEL}.AVX2.cpp {KERNEL}.DEFAULT.cpp",
    "LayerNormBackwardKernelImplInternal": f"{KERNEL}.AVX2.cpp {KERNEL}.DEFAULT.cpp",
    "layer_norm_backward_frame": f"{KERNEL}.AVX2.cpp {KERNEL}.DEFAULT.cpp",
    "layer_norm_double_backward": "FunctionsManual.cpp",
}
PATHS = {
    ("path", "layer_norm"): f"layer_norm_cpu > LayerNormKernelImpl, {NATIVE}/cpu/{KERNEL}:189",
    ("backward", "layer_norm, backward"): (
        f"layer_norm_backward_cpu > LayerNormBackwardKernelImpl, {NATIVE}/cpu/{KERNEL}:621"
    ),
    ("rms", "rms_norm"): f"call > rms_norm_composite, {NATIVE}/layer_norm.cpp:278",
    ("batch", "batch_norm"): f"batch_norm_cpu > batch_norm_cpu_out, {NATIVE}/Normalization.cpp:829",
    ("batch", "batch_norm, backward"): (
        f"redispatch > batch_norm_backward_cpu, {NATIVE}/Normalization.cpp:984"
    ),
    ("group", "group_norm"): (
        f"native_group_norm > GroupNormKernelImpl, {NATIVE}/cpu/group_norm_kernel.cpp:499"
    ),
}

FACTS = [
    Fact(
        "path",
        "where F.layer_norm stands",
        lambda: str(locate(F.layer_norm)),
        "torch/nn/functional.py:2966",
    ),
    Fact(
        "path",
        "AVX-512 registers nothing",
        lambda: str(locate_header("ATen/native/DispatchStub.h", "an AVX512 kernel to nullptr")),
        f"{NATIVE}/DispatchStub.h:494",
    ),
    Fact(
        "path",
        "backward operations of layer norm",
        lambda: ask.backward("layer_norm"),
        "native_layer_norm_backward",
    ),
    Fact(
        "forward",
        "what layer_norm_cpu calls",
        lambda: ask.calls("layer_norm"),
        "layer_norm native_layer_norm empty empty empty view view",
    ),
    Fact(
        "dispatch",
        "what the default kernel calls",
        ask.default_calls,
        "native_batch_norm addcmul",
    ),
    Fact(
        "forward",
        "statistics of bfloat16 with bfloat16 parameters",
        lambda: ask.dtypes("bfloat16", "bfloat16"),
        "bfloat16 bfloat16 bfloat16",
    ),
    Fact(
        "forward",
        "statistics of bfloat16 with float32 parameters",
        lambda: ask.dtypes("bfloat16", "float32"),
        "bfloat16 float32 float32",
    ),
    Fact(
        "forward",
        "vectors in a chunk of RowwiseMoments",
        lambda: str(locate_header(MOMENTS, "kChunkSize = 16")),
        f"{NATIVE}/cpu/moments_utils.h:19",
    ),
    Fact(
        "forward",
        "where RowwiseMoments stands",
        lambda: str(locate_header(MOMENTS, "RowwiseMoments(")),
        f"{NATIVE}/cpu/moments_utils.h:192",
    ),
    Fact(
        "saved",
        "what layer norm keeps",
        lambda: ask.saved("layer_norm"),
        [
            "(6,) float32",
            "(4, 6) float32",
            "(6,)",
            "(4, 1) float32",
            "(4, 1) float32",
            "(6,) float32",
        ],
    ),
    Fact(
        "batch",
        "what batch norm keeps in evaluation",
        lambda: ask.saved("batch_norm, eval", "result1", "result2", "training"),
        ["(0,) float32", "(0,) float32", "False"],
    ),
    Fact(
        "group",
        "what group norm keeps",
        lambda: ask.saved("group_norm", "result1", "result2", "HxW", "group"),
        ["(4, 3) float32", "(4, 3) float32", "2", "3"],
    ),
    *(
        Fact(
            "ledger",
            f"buffer for {dtype}, threads {threads}",
            lambda dtype=dtype, threads=threads: ask.buffer(dtype, threads),
            f"[2, {threads}, 6] in {12 * threads * size} bytes",
        )
        for (dtype, size) in (("float32", 4), ("bfloat16", 2), ("float16", 2))
        for threads in (1, 2)
    ),
    Fact("compiler", "the gradient in operators", ask.gradient_graph, LINES),
    Fact(
        "undocumented",
        "torch's tests know of issue 79705",
        lambda: ask.marked_as_failing(79705),
        True,
    ),
    *(
        Fact("dispatch", f"arguments of {n}", lambda n=n: " ".join(read_operator(n).arguments), v)
        for n, v in SCHEMAS.items()
    ),
    *(
        Fact(section, f"kernels of {n}", lambda n=n: read_operator(n).kernels, v)
        for (section, n), v in KERNELS.items()
    ),
    *(
        Fact("dispatch", f"{key} of {n}", lambda n=n, key=key: ask.kind(n, key), v)
        for (n, key), v in REGISTERED.items()
    ),
    *(
        Fact(section, f"formula of {n}, {of}", lambda n=n, of=of: ask.digest(n, of), v)
        for (section, n, of), v in FORMULAS.items()
    ),
    *(
        Fact(section, f"operations of {n}", lambda n=n: ask.forward(n), v)
        for (section, n), v in OPERATIONS.items()
    ),
    *(
        Fact("lanes", f"files of {n}", lambda n=n: ask.files(n), v, True)
        for n, v in COMPILED.items()
    ),
    *(
        Fact(section, f"call path of {n}", lambda n=n: ask.path(n), v, True)
        for (section, n), v in PATHS.items()
    ),
]
