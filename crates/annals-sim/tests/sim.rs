//! The harness itself: it finds planted faults, and a seed repeats a workload.
