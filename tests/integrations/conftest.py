import torchvision_ops

torchvision_ops.define_missing()
