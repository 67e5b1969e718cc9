"""Settings that differ between replicas: one number each, made to multiply whatever they are set beside."""

from torch import Tensor


def broadcast(setting: float | Tensor, like: Tensor) -> float | Tensor:
    """Give a setting the shape and the precision to multiply a tensor of replicas.

    Args:
        setting: a number, or one for each replica, `[*lead]`.
        like: the tensor, `[*lead, ...]`.

    >>> import torch
    >>> broadcast(torch.ones(3), torch.zeros(3, 5, 2)).shape
    torch.Size([3, 1, 1])
    """
    if not isinstance(setting, Tensor):
        return setting
    return setting.to(like.dtype).reshape((*setting.shape, *[1] * (like.dim() - setting.dim())))
