"""Programs beside the library, which nothing else imports: reproductions of papers, a benchmark of rules, and timings."""
