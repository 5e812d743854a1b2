//! RCCL: communication between GPUs of one or several processes.

mod communicator;
mod connection;
mod group;
mod handshake;
mod key;
mod mesh;
mod nodes;
mod progress;
mod rank;
mod rendezvous;
mod side_stream;
mod watchdog;
mod world;

pub use self::communicator::{Comm, CommOptions, UniqueId};
pub use self::connection::{Connection, Connections};
pub use self::group::{Group, Reduction};
pub use self::mesh::Mesh;
pub use self::nodes::NodeComm;
pub use self::rendezvous::Rendezvous;
pub use self::side_stream::SideStream;
pub use self::world::World;
