"""The graders of the chapter on fast norms accept right answers and name each mistake."""

RIGHT = {
    "check_bytes_moved": lambda rows, features, bytes_each: 5 * rows * features * bytes_each,
    "check_saved_numbers": lambda norm, rows, features: (1 + (norm == "layer_norm")) * rows,
    "check_sum_in_blocks": lambda dy: dy.float().sum(0).bfloat16(),
}
