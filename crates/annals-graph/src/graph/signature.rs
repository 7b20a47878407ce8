//! The signatures of the functions that a graph accepts: by them the implementations of one trait for all functions are
//! told apart.

/// Marks an implementation with a [`SignatureKind`].
#[doc(hidden)]
pub struct Signature<const KIND: u8>;

/// The arguments of a function, or of another implementation of the same trait.
pub(crate) enum SignatureKind {
    TakesState,
    TakesStateAndContext,
    TakesOwn,
    TakesOwnAndContext,
    TakesPart,
    TakesPartAndContext,
    /// An asynchronous function borrows its arguments until it ends, or owns them.
    BorrowsState,
    BorrowsStateAndContext,
    BorrowsPart,
    BorrowsPartAndContext,
    BorrowsContext,
    OwnsState,
    OwnsStateAndContext,
    OwnsPart,
    OwnsPartAndContext,
    OwnsInput,
    OwnsInputAndContext,
    Graph,
    PathNamed,
    PathOfState,
    PathOfStateAndContext,
    PathBorrowsState,
    PathBorrowsStateAndContext,
    PathOwnsState,
    PathOwnsStateAndContext,
    TakesInput,
    TakesInputAndContext,
    AwaitsInput,
    AwaitsInputAndContext,
    AwaitsBorrowing,
    Update,
    Argument,
    Input,
}
