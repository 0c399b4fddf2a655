"""Energy of batches: counted traffic and cycles times what each access and cycle costs."""
