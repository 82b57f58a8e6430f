"""The only modules that use the driver, NVML, ELF files and the locks of GPUs."""
