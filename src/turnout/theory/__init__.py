"""What papers prove about problems small enough to be solved by hand, as closed forms and numbers."""
