//! The place of a field in its state: the only code of a field that is compiled for each state.

use std::any::Any;
use std::marker::PhantomData;

use crate::base::Value;

/// The place of a field in a state `S`.
pub(super) trait Place<S>: Send + Sync {
    fn get<'a>(&self, state: &'a S) -> &'a dyn Any;
    fn get_mut<'a>(&self, state: &'a mut S) -> &'a mut dyn Any;
    /// Sets a managed value, given the number of supersteps that are left.
    fn set_managed(&self, _state: &mut S, _remaining: i64) {}
    /// Returns a managed value; null for other fields.
    fn managed(&self, _state: &S) -> Value {
        Value::Null
    }
}

/// A value of type `T` in a state.
pub(super) struct ValuePlace<T, G, M> {
    get: G,
    get_mut: M,
    value: PhantomData<fn() -> T>,
}

impl<T, G, M> ValuePlace<T, G, M> {
    pub(super) fn new<S>(get: G, get_mut: M) -> Self
    where
        G: Fn(&S) -> &T,
        M: Fn(&mut S) -> &mut T,
    {
        Self { get, get_mut, value: PhantomData }
    }
}

impl<S, T: 'static, G, M> Place<S> for ValuePlace<T, G, M>
where
    G: Fn(&S) -> &T + Send + Sync,
    M: Fn(&mut S) -> &mut T + Send + Sync,
{
    fn get<'a>(&self, state: &'a S) -> &'a dyn Any {
        (self.get)(state)
    }

    fn get_mut<'a>(&self, state: &'a mut S) -> &'a mut dyn Any {
        (self.get_mut)(state)
    }
}

/// A managed value of LangGraph, which is reached by functions and not by reference.
pub(super) struct ManagedPlace<F, G> {
    set: F,
    get: G,
}

impl<F, G> ManagedPlace<F, G> {
    /// `set` is given the number of supersteps that are left.
    pub(super) fn new(set: F, get: G) -> Self {
        Self { set, get }
    }
}

impl<S, F, G> Place<S> for ManagedPlace<F, G>
where
    F: Fn(&mut S, i64) + Send + Sync,
    G: Fn(&S) -> Value + Send + Sync,
{
    fn get<'a>(&self, _: &'a S) -> &'a dyn Any {
        &()
    }

    fn get_mut<'a>(&self, _: &'a mut S) -> &'a mut dyn Any {
        // A box of nothing allocates nothing.
        Box::leak(Box::new(()))
    }

    fn set_managed(&self, state: &mut S, remaining: i64) {
        (self.set)(state, remaining);
    }

    fn managed(&self, state: &S) -> Value {
        (self.get)(state)
    }
}

/// Returns the value of a field as its own type.
pub(super) fn held<T: 'static>(value: &dyn Any) -> &T {
    match value.downcast_ref() {
        Some(value) => value,
        None => unreachable!("a field is only given its own values"),
    }
}

/// Returns the value of a field as its own type, to change it.
pub(super) fn held_mut<T: 'static>(value: &mut dyn Any) -> &mut T {
    match value.downcast_mut() {
        Some(value) => value,
        None => unreachable!("a field is only given its own values"),
    }
}
