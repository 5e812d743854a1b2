//! Writes the Rust code for a `.proto` file into a folder: `serve-proto FILE FOLDER`. Uses a Protocol Buffers compiler in Rust,
//! so that no `protoc` is needed.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder] = &arguments[..] else {
        return Err("usage: serve-proto FILE FOLDER".into());
    };
    let include = Path::new(file).parent().ok_or("the file is in no folder")?;
    let files = protox::compile([file], [include])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_transport(false)
        .bytes(".")
        .out_dir(folder)
        .compile_fds(files)?;
    Ok(())
}
