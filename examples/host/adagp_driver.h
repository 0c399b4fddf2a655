/* A driver for programs that run from START to the interrupt: start, wait, stop, read the error. C99.
 *
 * Registers, bits and codes come from the generated adagp_regs.h. How registers are reached is up to
 * the caller: see struct adagp. */
#ifndef ADAGP_DRIVER_H
#define ADAGP_DRIVER_H

#include <stdint.h>

#include "adagp_regs.h"

/* Access to one accelerator. On a processor the functions read and write volatile memory:
 *
 *     static uint32_t read_register(void *context, uint32_t offset)
 *     {
 *         return ((volatile uint32_t *)context)[offset / 4];
 *     }
 */
struct adagp {
    uint32_t (*read)(void *context, uint32_t offset);
    void (*write)(void *context, uint32_t offset, uint32_t value);
    void *context;
};

/* A program in memory. The accelerator touches no byte outside the window. */
struct adagp_program {
    uint64_t memory_base;     /* start of the window in DRAM, a multiple of 4096 */
    uint64_t memory_bytes;    /* length of the window, at most 4 GiB */
    uint32_t program_offset;  /* first command in the window, a multiple of ADAGP_COMMAND_BYTES */
    uint32_t program_bytes;
    uint32_t watchdog_cycles; /* without progress, until an error ends the program; 0: none do */
};

/* What ended a program early. */
struct adagp_error {
    enum adagp_error_code code;
    enum adagp_unit unit;
    uint64_t address;  /* what it is, depends on the code: see adagp_regs.h */
};

enum adagp_result {
    ADAGP_RESULT_DONE,
    ADAGP_RESULT_ERROR,   /* adagp_read_error says which */
    ADAGP_RESULT_STOPPED, /* adagp_stop has ended it */
    ADAGP_RESULT_TIMEOUT  /* still running */
};

/* Whether this is an accelerator with the configuration that adagp_regs.h was generated for. */
int adagp_is_present(const struct adagp *device);

/* Start a program; the interrupt line rises when it has ended. The accelerator must be idle, and
 * what the processor wrote to the window must be in memory, not in a cache. */
void adagp_start(const struct adagp *device, const struct adagp_program *program);

/* Read the status until the program has ended, at most `polls` times, and end the interrupt. With an
 * interrupt handler, call it from there with polls = 1. */
enum adagp_result adagp_wait(const struct adagp *device, unsigned long polls);

/* End the program that runs, without an error; wait for its end as for any other. */
void adagp_stop(const struct adagp *device);

/* The first error of the last program; code ADAGP_ERROR_CODE_NONE if there was none. */
struct adagp_error adagp_read_error(const struct adagp *device);

#endif
