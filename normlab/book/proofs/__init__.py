"""What tries the theorems of the chapter on invariance: a linear map and a norm, as a pair."""
