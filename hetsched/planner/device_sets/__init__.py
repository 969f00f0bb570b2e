"""Which devices do a job: all, some of them, or a core team; and which slow each other down."""
