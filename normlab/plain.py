"""Each norm forward and backward in the fewest lines of ordinary torch, to read and to copy.

A pair of functions needs nothing but `import torch`. They check and cast nothing: they are right
for inputs of ordinary size in float32 and float64, and weight and bias are tensors. What else a
layer needs is in :mod:`normlab.layers`.

The comments give shapes. D stands for all axes of `normalized_shape`, and the 1 of `(*, 1)` for as
many of size one; `*` for any axes or none, G for groups, P for positions. `eps` stands inside the
root and has the units of x².
"""

import torch

__all__ = [
    "DeepNormBlock",
    "PreNormBlock",
    "PreRMSNormBlock",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_eval",
    "batch_norm_eval_backward",
    "batch_renorm",
    "batch_renorm_backward",
    "filter_response_norm",
    "filter_response_norm_backward",
    "global_response_norm",
    "global_response_norm_backward",
    "group_norm",
    "group_norm_backward",
    "instance_norm",
    "instance_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "scale_norm",
    "scale_norm_backward",
    "zero_centered_rms_norm",
    "zero_centered_rms_norm_backward",
]


def batch_norm(x, weight, bias, eps):
    """Standardize each channel of x, `(N, C, *)`, over batch and positions, as in training."""
    dims = (0, *range(2, x.ndim))  # (0,) for x (N, C); (0, 2, 3) for x (N, C, H, W)
    mean = x.mean(dims, keepdim=True)  # (1, C, 1, 1)
    var = (x - mean).square().mean(dims, keepdim=True)  # (1, C, 1, 1)
    rstd = torch.rsqrt(var + eps)  # (1, C, 1, 1)
    x_hat = (x - mean) * rstd  # (N, C, *)
    y = x_hat * weight.reshape(mean.shape) + bias.reshape(mean.shape)  # (N, C, *)
    return y, (x_hat, rstd, weight)


def batch_norm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of batch_norm."""
    x_hat, rstd, weight = cache  # (N, C, *), (1, C, 1, 1), (C,)
    dims = (0, *range(2, dy.ndim))  # (0,) for x (N, C); (0, 2, 3) for x (N, C, H, W)
    dx_hat = dy * weight.reshape(rstd.shape)  # (N, C, *)
    dx = dx_hat - dx_hat.mean(dims, keepdim=True)  # (N, C, *) minus its mean
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (N, C, *) minus its part along x_hat
    dx = dx * rstd  # (N, C, *)
    dweight = (dy * x_hat).sum(dims)  # (C,)
    dbias = dy.sum(dims)  # (C,)
    return dx, dweight, dbias


def batch_norm_eval(x, running_mean, running_var, weight, bias, eps):
    """Normalize each channel of x, `(N, C, *)`, with statistics that are constants."""
    shape = (-1, *[1] * (x.ndim - 2))  # (C, 1, 1) for x (N, C, H, W)
    rstd = torch.rsqrt(running_var + eps).reshape(shape)  # (C, 1, 1)
    x_hat = (x - running_mean.reshape(shape)) * rstd  # (N, C, *)
    y = x_hat * weight.reshape(shape) + bias.reshape(shape)  # (N, C, *)
    return y, (x_hat, rstd, weight)


def batch_norm_eval_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of batch_norm_eval."""
    x_hat, rstd, weight = cache  # (N, C, *), (C, 1, 1), (C,)
    dims = (0, *range(2, dy.ndim))  # (0,) for x (N, C); (0, 2, 3) for x (N, C, H, W)
    dx = dy * weight.reshape(rstd.shape) * rstd  # (N, C, *), nothing to subtract
    dweight = (dy * x_hat).sum(dims)  # (C,)
    dbias = dy.sum(dims)  # (C,)
    return dx, dweight, dbias


def layer_norm(x, normalized_shape, weight, bias, eps):
    """Standardize each sample of x, `(*, D)`, over its last axes, D = normalized_shape."""
    dims = tuple(range(-len(normalized_shape), 0))  # (-1,) for one axis; (-2, -1) for two
    mean = x.mean(dims, keepdim=True)  # (*, 1)
    var = (x - mean).square().mean(dims, keepdim=True)  # (*, 1)
    rstd = torch.rsqrt(var + eps)  # (*, 1)
    x_hat = (x - mean) * rstd  # (*, D)
    y = x_hat * weight + bias  # (*, D)
    return y, (x_hat, rstd, weight)


def layer_norm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of layer_norm."""
    x_hat, rstd, weight = cache  # (*, D), (*, 1), (D)
    dims = tuple(range(-weight.ndim, 0))  # (-1,) for one axis; (-2, -1) for two
    dx_hat = dy * weight  # (*, D)
    dx = dx_hat - dx_hat.mean(dims, keepdim=True)  # (*, D) minus its mean
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (*, D) minus its part along x_hat
    dx = dx * rstd  # (*, D)
    dweight = (dy * x_hat).reshape(-1, *weight.shape).sum(0)  # (D)
    dbias = dy.reshape(-1, *weight.shape).sum(0)  # (D)
    return dx, dweight, dbias


def rms_norm(x, normalized_shape, weight, eps):
    """Divide each sample of x, `(*, D)`, by its root mean square over D = normalized_shape."""
    dims = tuple(range(-len(normalized_shape), 0))  # (-1,) for one axis; (-2, -1) for two
    mean_square = x.square().mean(dims, keepdim=True)  # (*, 1)
    rrms = torch.rsqrt(mean_square + eps)  # (*, 1)
    x_hat = x * rrms  # (*, D)
    y = x_hat * weight  # (*, D)
    return y, (x_hat, rrms, weight)


def rms_norm_backward(dy, cache):
    """Give dx and dweight, from dy and the cache of rms_norm."""
    x_hat, rrms, weight = cache  # (*, D), (*, 1), (D)
    dims = tuple(range(-weight.ndim, 0))  # (-1,) for one axis; (-2, -1) for two
    dx = dy * weight  # (*, D), of which no mean is subtracted
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (*, D) minus its part along x_hat
    dx = dx * rrms  # (*, D)
    dweight = (dy * x_hat).reshape(-1, *weight.shape).sum(0)  # (D)
    return dx, dweight


def group_norm(x, num_groups, weight, bias, eps):
    """Standardize each group of channels of each sample of x, `(N, C, *)`, over its positions."""
    groups = x.reshape(len(x), num_groups, -1)  # (N, G, M), M = C/G · P
    mean = groups.mean(2, keepdim=True)  # (N, G, 1)
    var = (groups - mean).square().mean(2, keepdim=True)  # (N, G, 1)
    rstd = torch.rsqrt(var + eps)  # (N, G, 1)
    x_hat = (groups - mean) * rstd  # (N, G, M)
    channels = x_hat.reshape(len(x), len(weight), -1)  # (N, C, P)
    y = channels * weight[:, None] + bias[:, None]  # (N, C, P)
    return y.reshape(x.shape), (x_hat, rstd, weight)


def group_norm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of group_norm."""
    x_hat, rstd, weight = cache  # (N, G, M), (N, G, 1), (C,)
    channels = dy.reshape(len(dy), len(weight), -1)  # (N, C, P)
    dx_hat = (channels * weight[:, None]).reshape(x_hat.shape)  # (N, G, M)
    dx = dx_hat - dx_hat.mean(2, keepdim=True)  # (N, G, M) minus its mean
    dx = dx - x_hat * (dx * x_hat).mean(2, keepdim=True)  # (N, G, M) minus its part along x_hat
    dx = (dx * rstd).reshape(dy.shape)  # (N, C, *)
    dweight = (channels * x_hat.reshape(channels.shape)).sum((0, 2))  # (C,)
    dbias = channels.sum((0, 2))  # (C,)
    return dx, dweight, dbias


def instance_norm(x, weight, bias, eps):
    """Standardize each channel of each sample of x, `(N, C, *)`, over its positions."""
    dims = tuple(range(2, x.ndim))  # (2,) for x (N, C, L); (2, 3) for x (N, C, H, W)
    mean = x.mean(dims, keepdim=True)  # (N, C, 1, 1)
    var = (x - mean).square().mean(dims, keepdim=True)  # (N, C, 1, 1)
    rstd = torch.rsqrt(var + eps)  # (N, C, 1, 1)
    x_hat = (x - mean) * rstd  # (N, C, *)
    y = x_hat * weight.reshape(mean[0].shape) + bias.reshape(mean[0].shape)  # (N, C, *)
    return y, (x_hat, rstd, weight)


def instance_norm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of instance_norm."""
    x_hat, rstd, weight = cache  # (N, C, *), (N, C, 1, 1), (C,)
    dims = tuple(range(2, dy.ndim))  # (2,) for x (N, C, L); (2, 3) for x (N, C, H, W)
    dx_hat = dy * weight.reshape(rstd[0].shape)  # (N, C, *)
    dx = dx_hat - dx_hat.mean(dims, keepdim=True)  # (N, C, *) minus its mean
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (N, C, *) minus its part along x_hat
    dx = dx * rstd  # (N, C, *)
    dweight = (dy * x_hat).sum((0, *dims))  # (C,)
    dbias = dy.sum((0, *dims))  # (C,)
    return dx, dweight, dbias


def scale_norm(x, weight, eps):
    """Give each vector of x, `(*, D)`, the length weight; shorter than eps, it stays shorter."""
    length = x.square().sum(-1, keepdim=True).sqrt()  # (*, 1)
    rlength = 1 / length.clamp(min=eps)  # (*, 1)
    x_hat = x * rlength  # (*, D)
    y = x_hat * weight  # (*, D), weight is one number
    return y, (x_hat, rlength, weight)


def scale_norm_backward(dy, cache):
    """Give dx and dweight, from dy and the cache of scale_norm; no vector is shorter than eps."""
    x_hat, rlength, weight = cache  # (*, D), (*, 1), ()
    along = (dy * x_hat).sum(-1, keepdim=True)  # (*, 1), the part of dy along the vector
    dx = weight * rlength * (dy - x_hat * along)  # (*, D)
    dweight = along.sum()  # ()
    return dx, dweight


def filter_response_norm(x, weight, bias, threshold, eps):
    """Divide each channel of a sample of x, `(N, C, *)`, by its root mean square, and bound it."""
    dims, shape = tuple(range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))  # (2, 3) and (C, 1, 1)
    rrms = torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)  # (N, C, 1, 1)
    x_hat = x * rrms  # (N, C, *)
    y = x_hat * weight.reshape(shape) + bias.reshape(shape)  # (N, C, *)
    limit = threshold.reshape(shape)  # (C, 1, 1)
    return torch.maximum(y, limit), (x_hat, rrms, weight, y < limit)


def filter_response_norm_backward(dy, cache):
    """Give dx, dweight, dbias and dthreshold, from dy and the cache of filter_response_norm."""
    x_hat, rrms, weight, cut = cache  # (N, C, *), (N, C, 1, 1), (C,), (N, C, *)
    dims, rows = tuple(range(2, dy.ndim)), (0, *range(2, dy.ndim))  # (2, 3) and (0, 2, 3)
    passed = dy.masked_fill(cut, 0.0)  # (N, C, *), what is cut off goes to the threshold
    g = passed * weight.reshape(-1, *[1] * len(dims))  # (N, C, *)
    dx = rrms * (g - x_hat * (g * x_hat).mean(dims, keepdim=True))  # (N, C, *)
    dweight, dbias = (passed * x_hat).sum(rows), passed.sum(rows)  # (C,), (C,)
    dthreshold = (dy - passed).sum(rows)  # (C,)
    return dx, dweight, dbias, dthreshold


def zero_centered_rms_norm(x, normalized_shape, weight, eps):
    """Divide each sample of x, `(*, D)`, by its root mean square, and multiply it by 1 + weight."""
    dims = tuple(range(-len(normalized_shape), 0))  # (-1,) for one axis; (-2, -1) for two
    rrms = torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)  # (*, 1)
    x_hat = x * rrms  # (*, D)
    y = x_hat * (1 + weight)  # (*, D), in float32 for a 16-bit weight
    return y, (x_hat, rrms, weight)


def zero_centered_rms_norm_backward(dy, cache):
    """Give dx and dweight, from dy and the cache of zero_centered_rms_norm."""
    x_hat, rrms, weight = cache  # (*, D), (*, 1), (D)
    dims = tuple(range(-weight.ndim, 0))  # (-1,) for one axis; (-2, -1) for two
    dx = dy * (1 + weight)  # (*, D), of which no mean is subtracted
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (*, D) minus its part along x_hat
    dx = dx * rrms  # (*, D)
    dweight = (dy * x_hat).reshape(-1, *weight.shape).sum(0)  # (D)
    return dx, dweight


def global_response_norm(x, weight, bias, eps):
    """Strengthen the channels of x, `(N, C, *)`, that are long beside the others, and add x."""
    dims, shape = tuple(range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))  # (2, 3) and (C, 1, 1)
    length = x.square().sum(dims, keepdim=True).sqrt()  # (N, C, 1, 1)
    mean_length = length.mean(1, keepdim=True) + eps  # (N, 1, 1, 1)
    strengthened = x * length / mean_length  # (N, C, *)
    y = x + strengthened * weight.reshape(shape) + bias.reshape(shape)  # (N, C, *)
    return y, (x, length, mean_length, weight)


def global_response_norm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of global_response_norm."""
    x, length, mean_length, weight = cache  # (N, C, *), (N, C, 1, 1), (N, 1, 1, 1), (C,)
    dims, rows = tuple(range(2, dy.ndim)), (0, *range(2, dy.ndim))  # (2, 3) and (0, 2, 3)
    g = dy * weight.reshape(-1, *[1] * len(dims))  # (N, C, *)
    dratio = (g * x).sum(dims, keepdim=True) / mean_length  # (N, C, 1, 1)
    dlength = dratio - (dratio * length).mean(1, keepdim=True) / mean_length  # (N, C, 1, 1)
    dx = dy + g * length / mean_length + x / length * dlength  # (N, C, *), no channel is zero
    dweight, dbias = (dy * x * length / mean_length).sum(rows), dy.sum(rows)  # (C,), (C,)
    return dx, dweight, dbias


def batch_renorm(x, running_mean, running_var, weight, bias, eps, r_max, d_max):
    """Standardize each channel of x, `(N, C, *)`, and correct it by r and d, as in training."""
    dims = (0, *range(2, x.ndim))  # (0,) for x (N, C); (0, 2, 3) for x (N, C, H, W)
    mean = x.mean(dims, keepdim=True)  # (1, C, 1, 1)
    var = (x - mean).square().mean(dims, keepdim=True)  # (1, C, 1, 1)
    rstd = torch.rsqrt(var + eps)  # (1, C, 1, 1)
    running_rstd = torch.rsqrt(running_var + eps).reshape(mean.shape)  # (1, C, 1, 1)
    r = (running_rstd / rstd).clamp(1 / r_max, r_max)  # (1, C, 1, 1), a constant
    d = (mean - running_mean.reshape(mean.shape)) * running_rstd  # (1, C, 1, 1)
    d = d.clamp(-d_max, d_max)  # (1, C, 1, 1), a constant
    x_hat = (x - mean) * rstd  # (N, C, *)
    y = (x_hat * r + d) * weight.reshape(mean.shape) + bias.reshape(mean.shape)  # (N, C, *)
    return y, (x_hat, rstd, r, d, weight)


def batch_renorm_backward(dy, cache):
    """Give dx, dweight and dbias, from dy and the cache of batch_renorm; r and d have no part."""
    x_hat, rstd, r, d, weight = cache  # (N, C, *), (1, C, 1, 1) three times, (C,)
    dims = (0, *range(2, dy.ndim))  # (0,) for x (N, C); (0, 2, 3) for x (N, C, H, W)
    dx_hat = dy * weight.reshape(rstd.shape) * r  # (N, C, *)
    dx = dx_hat - dx_hat.mean(dims, keepdim=True)  # (N, C, *) minus its mean
    dx = dx - x_hat * (dx * x_hat).mean(dims, keepdim=True)  # (N, C, *) minus its part along x_hat
    dx = dx * rstd  # (N, C, *)
    dweight = (dy * (x_hat * r + d)).sum(dims)  # (C,)
    dbias = dy.sum(dims)  # (C,)
    return dx, dweight, dbias


class DeepNormBlock(torch.nn.Module):
    """A Transformer block for x (N, T, D): norms after the sums, skips times alpha, gains beta."""

    def __init__(self, width, heads, hidden, alpha, beta, norm=torch.nn.LayerNorm):
        super().__init__()
        self.heads, self.alpha = heads, alpha
        self.query, self.key, self.value, self.output = (
            torch.nn.Linear(width, width) for _ in range(4)
        )
        self.up, self.down = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)
        self.norm_1, self.norm_2 = norm(width), norm(width)
        for layer in (self.query, self.key, self.value, self.output, self.up, self.down):
            gain = 1.0 if layer in (self.query, self.key) else beta
            torch.nn.init.xavier_normal_(layer.weight, gain)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, T, D/heads)
            for layer in (self.query, self.key, self.value)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = self.norm_1(self.alpha * x + self.output(mixed.flatten(2)))  # (N, T, D)
        return self.norm_2(self.alpha * x + self.down(torch.relu(self.up(x))))  # (N, T, D)


class PreNormBlock(torch.nn.Module):
    """A GPT's block for x (B, T, C): a norm before each sublayer, none on the sum x itself."""

    def __init__(self, width, heads, hidden, norm=torch.nn.LayerNorm):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = norm(width), norm(width)
        self.query_key_value = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, T, C/heads)
            for part in self.query_key_value(self.norm_1(x)).chunk(3, dim=-1)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))  # (B, T, C)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm_2(x))))  # (B, T, C)


class PreRMSNormBlock(torch.nn.Module):
    """A block as in Llama for x (N, T, D): norms before the sublayers, a gate in the second."""

    def __init__(self, width, heads, hidden, norm=torch.nn.RMSNorm, eps=1e-5):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = norm(width, eps), norm(width, eps)
        self.query, self.key, self.value, self.output = (
            torch.nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (torch.nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        h = self.norm_1(x)  # (N, T, D)
        q, k, v = (
            layer(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, T, D/heads)
            for layer in (self.query, self.key, self.value)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))  # (N, T, D), the stream goes on
        h = self.norm_2(x)  # (N, T, D)
        gated = torch.nn.functional.silu(self.gate(h)) * self.up(h)  # (N, T, hidden)
        return x + self.down(gated)  # (N, T, D)
