//! The one integration binary: what a user of the library sees, on its public API.

#![allow(clippy::unwrap_used, missing_docs)]

mod backends;
mod crash;
mod graphs;
mod store_model;
