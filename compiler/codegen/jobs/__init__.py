"""Work of a layer as jobs on blocks of a memory, and how they are done."""
