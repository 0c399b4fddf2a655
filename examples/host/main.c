/* Runs the program that `python -m examples` wrote, compares what it stored, then provokes an error
 * and stops a run.
 *
 * usage: host DIRECTORY   (memory.bin and expected.bin are in it) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adagp_example.h"
#include "platform.h"

#define POLLS 1000000ul
/* More than the longest command takes, and than the memory ever pauses. */
#define WATCHDOG_CYCLES 1000000u

static void fail(const char *reason)
{
    printf("FAIL %s\n", reason);
    exit(1);
}

static void read_file(const char *directory, const char *name, uint8_t *data, size_t bytes)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        fail("the path is too long");
    FILE *file = fopen(path, "rb");
    if (!file || fread(data, 1, bytes, file) != bytes)
        fail(path);
    fclose(file);
}

static void run_and_compare(const struct adagp *device, const struct adagp_program *program,
                            const char *directory)
{
    static uint8_t expected[EXAMPLE_MEMORY_BYTES];
    uint8_t *memory = platform_memory(EXAMPLE_MEMORY_BASE, EXAMPLE_MEMORY_BYTES);
    read_file(directory, "memory.bin", memory, EXAMPLE_MEMORY_BYTES);
    read_file(directory, "expected.bin", expected, EXAMPLE_MEMORY_BYTES);

    adagp_start(device, program);
    if (adagp_wait(device, POLLS) != ADAGP_RESULT_DONE) {
        struct adagp_error error = adagp_read_error(device);
        printf("error %d of unit %d at 0x%llx\n", (int)error.code, (int)error.unit,
               (unsigned long long)error.address);
        fail("the program did not end well");
    }
    for (uint32_t i = 0; i < EXAMPLE_MEMORY_BYTES; i++)
        if (memory[i] != expected[i]) {
            printf("byte %u of the window is 0x%02x, expected 0x%02x\n", (unsigned)i, memory[i],
                   expected[i]);
            fail("a byte differs");
        }
    printf("all %u bytes as expected\n", (unsigned)EXAMPLE_MEMORY_BYTES);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: host DIRECTORY");
    struct adagp device = platform_accelerator();
    if (!adagp_is_present(&device))
        fail("no accelerator of this configuration");

    struct adagp_program program = {
        .memory_base = EXAMPLE_MEMORY_BASE,
        .memory_bytes = EXAMPLE_MEMORY_BYTES,
        .program_offset = EXAMPLE_PROGRAM_OFFSET,
        .program_bytes = EXAMPLE_PROGRAM_BYTES,
        .watchdog_cycles = WATCHDOG_CYCLES,
    };
    run_and_compare(&device, &program, argv[1]);

    /* Without its last command, HALT, the program is refused at its end. */
    struct adagp_program cut = program;
    cut.program_bytes -= ADAGP_COMMAND_BYTES;
    adagp_start(&device, &cut);
    if (adagp_wait(&device, POLLS) != ADAGP_RESULT_ERROR)
        fail("a program without HALT ended without an error");
    struct adagp_error error = adagp_read_error(&device);
    if (error.code != ADAGP_ERROR_CODE_PROGRAM_END)
        fail("the error has another code than ADAGP_ERROR_CODE_PROGRAM_END");
    printf("without HALT: error %d of unit %d at 0x%llx\n", (int)error.code, (int)error.unit,
           (unsigned long long)error.address);

    /* A run can be stopped at any time. */
    adagp_start(&device, &program);
    adagp_stop(&device);
    if (adagp_wait(&device, POLLS) != ADAGP_RESULT_STOPPED)
        fail("a run that was stopped ended in another way");
    printf("stopped\n");

    /* Neither leaves anything behind. */
    run_and_compare(&device, &program, argv[1]);
    printf("PASS\n");
    return 0;
}
