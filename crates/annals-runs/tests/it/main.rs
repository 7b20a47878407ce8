//! The integration tests of runs, as one program.

mod control;
