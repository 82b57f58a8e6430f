"""The only modules that touch the driver, NVML, ELF files and the locks of GPUs."""
