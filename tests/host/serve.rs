//! `hipvit serve` on the CPU: its protocols, limits, operation and end.

mod access_log;
mod chat_load;
mod chats;
mod connections;
mod encoded;
mod generation;
mod grpc;
mod health;
mod http;
mod lifecycle;
mod limits;
mod memory;
mod neighbours;
mod openai;
mod operation;
mod repository;
mod request_keys;
mod tei;
mod tensors;
mod texts;
mod traces;
mod triton;
mod vision;
mod web;
