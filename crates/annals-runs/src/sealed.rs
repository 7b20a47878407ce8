//! Keeps the traits of this crate to the handles of `annals`, so that they can get methods.

use crate::history::{Snapshot, Thread};
use crate::store::Store;

/// Implemented by the handles alone.
pub trait Sealed {}

impl Sealed for Store {}
impl Sealed for Thread {}
impl Sealed for Snapshot {}
