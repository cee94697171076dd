"""The norms over several processes, forward and backward, in the fewest lines: to read and copy.

They need nothing but the two imports below, and a process group that is initialized. They check
and cast nothing. n, h and t are this process's share of N samples, of H features and of T tokens;
W is the number of processes. What they lack is in :mod:`normlab.parallel`.
"""

import torch
import torch.distributed as dist

__all__ = [
    "features_layer_norm",
    "features_layer_norm_backward",
    "features_rms_norm",
    "features_rms_norm_backward",
    "sync_batch_norm",
    "sync_batch_norm_backward",
    "tokens_rms_norm",
    "tokens_rms_norm_backward",
]


def sync_batch_norm(x, weight, bias, eps):
    """Standardize each channel of x, `(n, C)`, over the samples of all processes."""
    mean = x.mean(0)  # (C,), of this process
    squares = (x - mean).square().sum(0)  # (C,)
    mine = torch.cat([mean, squares, x.new_tensor([len(x)])])  # (2C + 1,)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    sizes = [len(mean), len(mean), 1]
    means, squares, counts = torch.stack(parts).split(sizes, dim=1)  # (W, C), (W, C), (W, 1)
    mean = (counts * means).sum(0) / counts.sum()  # (C,), of all
    spread = counts * (means - mean).square()  # (W, C), how far the processes' means differ
    var = (squares + spread).sum(0) / counts.sum()  # (C,)
    rstd = torch.rsqrt(var + eps)  # (C,)
    x_hat = (x - mean) * rstd  # (n, C)
    return x_hat * weight + bias, (x_hat, rstd, weight, counts.sum())


def sync_batch_norm_backward(dy, cache):
    """Give dx, and the parts of dweight and dbias that come from this process's samples."""
    x_hat, rstd, weight, count = cache  # (n, C), (C,), (C,), ()
    dweight = (dy * x_hat).sum(0)  # (C,), of this process
    dbias = dy.sum(0)  # (C,)
    sums = torch.cat([dbias, dweight])  # (2C,)
    dist.all_reduce(sums)
    mean_dy, mean_dy_x_hat = (sums / count).chunk(2)  # (C,), (C,), of all
    dx = (dy - mean_dy - x_hat * mean_dy_x_hat) * weight * rstd  # (n, C)
    return dx, dweight, dbias


def features_rms_norm(x, weight, eps):
    """Divide each token of x, `(T, h)`, by its root mean square over all H features."""
    squares = x.square().sum(-1)  # (T,)
    sums = torch.cat([squares, x.new_tensor([x.shape[-1]])])  # (T + 1,)
    dist.all_reduce(sums)
    mean_square = (sums[:-1] / sums[-1])[:, None]  # (T, 1)
    rrms = torch.rsqrt(mean_square + eps)  # (T, 1)
    x_hat = x * rrms  # (T, h)
    return x_hat * weight, (x_hat, rrms, weight, sums[-1])


def features_rms_norm_backward(dy, cache):
    """Give dx and dweight; dweight is complete, since this process has all tokens."""
    x_hat, rrms, weight, size = cache  # (T, h), (T, 1), (h,), ()
    dx_hat = dy * weight  # (T, h)
    along = (dx_hat * x_hat).sum(-1, keepdim=True)  # (T, 1)
    dist.all_reduce(along)
    dx = (dx_hat - x_hat * along / size) * rrms  # (T, h)
    return dx, (dy * x_hat).sum(0)  # (T, h), (h,)


def features_layer_norm(x, weight, bias, eps):
    """Standardize each token of x, `(T, h)`, over all H features."""
    sums = torch.cat([x.sum(-1), x.new_tensor([x.shape[-1]])])  # (T + 1,)
    dist.all_reduce(sums)
    centered = x - (sums[:-1] / sums[-1])[:, None]  # (T, h)
    squares = centered.square().sum(-1, keepdim=True)  # (T, 1)
    dist.all_reduce(squares)
    rstd = torch.rsqrt(squares / sums[-1] + eps)  # (T, 1)
    x_hat = centered * rstd  # (T, h)
    return x_hat * weight + bias, (x_hat, rstd, weight, sums[-1])


def features_layer_norm_backward(dy, cache):
    """Give dx, dweight and dbias; the last two are complete."""
    x_hat, rstd, weight, size = cache  # (T, h), (T, 1), (h,), ()
    dx_hat = dy * weight  # (T, h)
    sums = torch.stack([dx_hat.sum(-1), (dx_hat * x_hat).sum(-1)])  # (2, T)
    dist.all_reduce(sums)
    mean, along = (sums / size)[..., None]  # (T, 1), (T, 1)
    dx = (dx_hat - mean - x_hat * along) * rstd  # (T, h)
    return dx, (dy * x_hat).sum(0), dy.sum(0)  # (T, h), (h,), (h,)


def tokens_rms_norm(x, weight, eps):
    """Divide each of this process's tokens, x `(t, H)`, by its root mean square: sends nothing."""
    rrms = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)  # (t, 1)
    x_hat = x * rrms  # (t, H)
    return x_hat * weight, (x_hat, rrms, weight)


def tokens_rms_norm_backward(dy, cache):
    """Give dx and dweight, which is summed over the tokens of all processes."""
    x_hat, rrms, weight = cache  # (t, H), (t, 1), (H,)
    dx_hat = dy * weight  # (t, H)
    dx = (dx_hat - x_hat * (dx_hat * x_hat).mean(-1, keepdim=True)) * rrms  # (t, H)
    dweight = (dy * x_hat).sum(0)  # (H,), of these tokens
    dist.all_reduce(dweight)
    return dx, dweight
