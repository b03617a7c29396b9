"""The fused primitive: one pass over logits -> statistics of the softmax; `statistics` is the entrance."""
