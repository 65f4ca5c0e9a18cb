"""The computation of a cohort: flat parameter vectors, models as functions of them, losses and gradients."""
