"""Programs beside the library, which nothing else imports: the participation benchmark."""
