// Compiles to nothing: its target owns the precompiled headers of all programs of tests.
