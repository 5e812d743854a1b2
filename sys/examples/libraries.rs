//! Prints which of ROCm's libraries are installed, where, and which functions they lack.

use hipvit_sys::{Error, Provider, Table};

fn show<T: Table>(opened: Result<&T, Error>) {
    match opened {
        Ok(table) => {
            let all = T::FUNCTIONS.len();
            println!(
                "{}: {}, {all} functions bound",
                T::LIBRARY,
                table.path().display()
            );
            for function in table.missing() {
                println!("    lacks {function}");
            }
        }
        Err(error) => println!("{error}"),
    }
}

fn main() -> Result<(), Error> {
    let provider = Provider::from_env()?;
    show(provider.hip());
    show(provider.hiprtc());
    show(provider.rocblas());
    show(provider.hipblaslt());
    show(provider.hipsparselt());
    show(provider.miopen());
    show(provider.rccl());
    show(provider.amd_smi());
    if let Ok(hip) = provider.hip() {
        let (mut version, mut count) = (0, 0);
        // SAFETY: `version` is an int that the call may write.
        let asked = unsafe { hip.hipRuntimeGetVersion(&mut version) }?;
        println!("version: {version}, {asked}");
        // SAFETY: `count` is an int that the call may write.
        let asked = unsafe { hip.hipGetDeviceCount(&mut count) }?;
        println!("devices: {count}, {asked}");
    }
    Ok(())
}
