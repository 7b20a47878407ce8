//! Fields that the executor fills for each task: nothing writes or stores them.

use std::any::Any;
use std::sync::Arc;

use crate::base::{Payload, PayloadRef, Value, WriteValue};
use crate::channel::ChannelEffect;

use super::error::StateError;
use super::field::{FieldOps, wrong_type};
use super::writes::BoxWrite;

/// A managed value of LangGraph, which its place sets and reads.
pub(super) struct ManagedField;

fn refused<T>(name: &Arc<str>) -> Result<T, StateError> {
    Err(wrong_type::<()>(name, "a write: its value is managed"))
}

impl FieldOps for ManagedField {
    fn takes(&self, _: &BoxWrite) -> bool {
        false
    }

    fn encode_write(&self, name: &Arc<str>, _: &BoxWrite) -> Result<WriteValue, StateError> {
        refused(name)
    }

    fn decode_write(&self, name: &Arc<str>, _: &WriteValue) -> Result<BoxWrite, StateError> {
        refused(name)
    }

    fn write_from_value(&self, name: &Arc<str>, _: Value) -> Result<BoxWrite, StateError> {
        refused(name)
    }

    fn write_to_value(&self, name: &Arc<str>, _: &BoxWrite) -> Result<Value, StateError> {
        refused(name)
    }

    fn update(
        &self,
        name: &Arc<str>,
        _: &mut dyn Any,
        _: &mut bool,
        _: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        refused(name)
    }

    fn idle(&self, _: &mut dyn Any, _: &mut bool) -> ChannelEffect {
        ChannelEffect::Unchanged
    }

    fn reset(&self, _: &mut dyn Any) {}

    fn encode(&self, name: &Arc<str>, _: &dyn Any) -> Result<Payload, StateError> {
        refused(name)
    }

    fn load(&self, _: &Arc<str>, _: &mut dyn Any, _: PayloadRef<'_>) -> Result<(), StateError> {
        // A file may hold a channel of this name from before it was managed.
        Ok(())
    }

    fn type_name(&self) -> &'static str {
        "a managed value"
    }

    fn to_value(&self, name: &Arc<str>, _: &dyn Any) -> Result<Value, StateError> {
        refused(name)
    }

    fn set(&self, _: &Arc<str>, _: &mut dyn Any, _: Value) -> Result<(), StateError> {
        Ok(())
    }

    fn copy(&self, _: &dyn Any, _: &mut dyn Any) {}
}
