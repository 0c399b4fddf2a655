/* What differs between a board and the simulation. */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#include "adagp_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The accelerator, out of reset. */
struct adagp platform_accelerator(void);

/* The processor's view of `bytes` of DRAM from the accelerator's address `base` on. */
uint8_t *platform_memory(uint64_t base, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
