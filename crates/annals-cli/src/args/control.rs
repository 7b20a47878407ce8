//! The arguments of the verbs that control runs from outside.

#[derive(Debug, clap::Args)]
pub(crate) struct SignalArgs {
    /// Id of the thread, which need not exist
    pub(crate) thread: String,
    /// Name of the signal
    pub(crate) name: String,
    /// Value: JSON, or else a text
    #[arg(default_value = "null")]
    pub(crate) value: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Resume value: JSON, or else a text
    pub(crate) value: String,
    /// Id of the interrupt, if several are open
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Ids of the threads
    #[arg(required = true)]
    pub(crate) threads: Vec<String>,
    /// Reason of the cancel
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ThreadsArg {
    /// Ids of the threads
    #[arg(required = true)]
    pub(crate) threads: Vec<String>,
}
