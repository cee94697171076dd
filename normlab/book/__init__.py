"""What only the book calls: experiments, exercises, figures, and code shown in a notebook."""
