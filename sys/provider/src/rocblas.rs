//! rocBLAS: its status, its version text, and what no provider offers.

use hipvit_sys::rocblas::rocblas_status;

crate::export::status! {
    rocblas_status, success: rocblas_status_success, panic: rocblas_status_internal_error,
    null: rocblas_status_invalid_pointer
}

/// Exports rocBLAS's functions that all providers implement alike: the names of statuses, the version and initialisation. Exports the
/// queries of performance and workspace sizes, which no provider offers, too.
///
/// `$version` is a function that returns a `Result<String, rocblas_status>`.
#[macro_export]
macro_rules! shared_rocblas {
    ($version:path) => {
        $crate::status_name! { rocblas, rocblas_status, rocblas_status_to_string, "rocblas_status_unknown" }

        /// Does nothing: kernels are loaded at their first use. The real one ends the process if there is no device.
        #[unsafe(no_mangle)]
        extern "C" fn rocblas_initialize() {}
        const _: $crate::sys::rocblas::prototypes::rocblas_initialize = rocblas_initialize;

        $crate::export! { rocblas, $crate::sys::rocblas::rocblas_status, $crate::rocblas::run;
            fn rocblas_get_version_string_size(size: *mut usize) {
                $crate::rocblas::put(size, $version()?.len() + 1)
            }

            fn rocblas_get_version_string(to: *mut ::std::ffi::c_char, len: usize) {
                let version = $version()?;
                if to.is_null() {
                    return Err($crate::sys::rocblas::rocblas_status::rocblas_status_invalid_pointer);
                }
                if len <= version.len() {
                    return Err($crate::sys::rocblas::rocblas_status::rocblas_status_invalid_size);
                }
                $crate::export::copy_text(version.as_bytes(), to, len);
                Ok(())
            }
        }

        $crate::not_offered! {
            rocblas, $crate::sys::rocblas::rocblas_status,
            $crate::sys::rocblas::rocblas_status::rocblas_status_not_implemented;
            rocblas_set_solution_fitness_query
            rocblas_set_performance_metric
            rocblas_get_performance_metric
            rocblas_start_device_memory_size_query
            rocblas_stop_device_memory_size_query
            rocblas_set_device_memory_size
        }

        $crate::not_offered! { rocblas, bool, false;
            rocblas_is_device_memory_size_query
        }
    };
}
