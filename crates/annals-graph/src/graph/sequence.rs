//! Nodes that run one after another.

use std::sync::Arc;

use super::node::{IntoNode, NodeBody};

/// Nodes with their names, in the order in which they run: a tuple of up to eight `(name, node)`, or a list of them.
pub trait IntoSequence<S, M> {
    /// Returns the nodes, each with the name of its function in Rust.
    #[doc(hidden)]
    fn into_sequence(self) -> Vec<(Arc<str>, NodeBody, &'static str)>;
}

fn named<S, M>(name: impl Into<Arc<str>>, node: impl IntoNode<S, M>) -> (Arc<str>, NodeBody, &'static str) {
    let function = std::any::type_name_of_val(&node);
    (name.into(), node.into_node(), function)
}

impl<S, N: Into<Arc<str>>, F: IntoNode<S, M>, M> IntoSequence<S, M> for Vec<(N, F)> {
    fn into_sequence(self) -> Vec<(Arc<str>, NodeBody, &'static str)> {
        self.into_iter().map(|(name, node)| named(name, node)).collect()
    }
}

macro_rules! sequence {
    ($($name:ident $node:ident $kind:ident $at:tt),+) => {
        impl<S, $($name: Into<Arc<str>>, $node: IntoNode<S, $kind>, $kind),+> IntoSequence<S, ($($kind,)+)>
            for ($(($name, $node),)+)
        {
            fn into_sequence(self) -> Vec<(Arc<str>, NodeBody, &'static str)> {
                vec![$(named(self.$at.0, self.$at.1)),+]
            }
        }
    };
}
sequence!(N0 F0 M0 0);
sequence!(N0 F0 M0 0, N1 F1 M1 1);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2, N3 F3 M3 3);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2, N3 F3 M3 3, N4 F4 M4 4);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2, N3 F3 M3 3, N4 F4 M4 4, N5 F5 M5 5);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2, N3 F3 M3 3, N4 F4 M4 4, N5 F5 M5 5, N6 F6 M6 6);
sequence!(N0 F0 M0 0, N1 F1 M1 1, N2 F2 M2 2, N3 F3 M3 3, N4 F4 M4 4, N5 F5 M5 5, N6 F6 M6 6, N7 F7 M7 7);
