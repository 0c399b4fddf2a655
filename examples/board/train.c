/* Trains a network on a board, batch after batch, and compares what it has learned.
 *
 * usage: train PORT DIRECTORY [SECONDS]
 *
 * PORT is the board's serial port. memory.bin, batches.bin and expected.bin are in DIRECTORY, written
 * by `python -m examples.board`. SECONDS without an answer mean that nobody is there (1); a simulated
 * board is slow. The exit status is 0 if every byte is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adagp_board.h"
#include "adagp_driver.h"
#include "adagp_training.h"
#include "uartbone.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
#define POLLS 100000000ul
#define WATCHDOG_CYCLES 100000000u

static void fail(const char *reason)
{
    fflush(stdout);
    fprintf(stderr, "FAIL %s\n", reason);
    exit(1);
}

static void require(const struct uartbone *bone)
{
    if (bone->error)
        fail(bone->error);
}

/* Registers of the accelerator, for its driver. */
static uint32_t read_register(void *context, uint32_t offset)
{
    uint32_t value = 0;
    uartbone_read(context, ADAGP_BOARD_ACCELERATOR_BASE + offset, &value, 1);
    require(context);
    return value;
}

static void write_register(void *context, uint32_t offset, uint32_t value)
{
    uartbone_write(context, ADAGP_BOARD_ACCELERATOR_BASE + offset, &value, 1);
    require(context);
}

static uint32_t read_system(struct uartbone *bone, uint32_t offset)
{
    uint32_t value = 0;
    uartbone_read(bone, ADAGP_BOARD_SYSTEM_BASE + offset, &value, 1);
    require(bone);
    return value;
}

/* Bytes of the memory window; offset and count are multiples of four. */
static void put(struct uartbone *bone, uint32_t offset, const uint8_t *data, uint32_t count)
{
    uint32_t *words = malloc(count);
    if (!words)
        fail("no memory");
    for (uint32_t i = 0; i < count / 4; i++)
        words[i] = (uint32_t)data[4 * i] | (uint32_t)data[4 * i + 1] << 8 |
                   (uint32_t)data[4 * i + 2] << 16 | (uint32_t)data[4 * i + 3] << 24;
    uartbone_write(bone, TRAINING_MEMORY_BASE + offset, words, count / 4);
    free(words);
    require(bone);
}

static void get(struct uartbone *bone, uint32_t offset, uint8_t *data, uint32_t count)
{
    uint32_t *words = malloc(count);
    if (!words)
        fail("no memory");
    uartbone_read(bone, TRAINING_MEMORY_BASE + offset, words, count / 4);
    require(bone);
    for (uint32_t i = 0; i < count; i++)
        data[i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
    free(words);
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

static void find_board(struct uartbone *bone, const struct adagp *device)
{
    if (read_system(bone, ADAGP_BOARD_MAGIC_OFFSET) != ADAGP_BOARD_MAGIC_CONSTANT)
        fail("this bitstream is none of ours");
    if (!adagp_is_present(device)) {
        printf("configuration %08lx, not %08lx\n",
               (unsigned long)read_register(bone, ADAGP_CONFIG_HASH_OFFSET),
               (unsigned long)ADAGP_CONFIG_HASH_CONSTANT);
        fail("the bitstream is for another configuration");
    }
    while (!(read_system(bone, ADAGP_BOARD_STATUS_OFFSET) & ADAGP_BOARD_STATUS_MEMORY_READY_MASK))
        ;
    printf("configuration %s, clock %lu Hz, memory %lu bytes\n", ADAGP_CONFIG_HASH_TEXT,
           (unsigned long)read_system(bone, ADAGP_BOARD_CLOCK_HZ_OFFSET),
           (unsigned long)read_system(bone, ADAGP_BOARD_MEMORY_BYTES_OFFSET));
}

/* One batch, its inputs in the order of training_inputs; the bits of its loss. */
static uint32_t train(struct uartbone *bone, const struct adagp *device, const uint8_t *inputs)
{
    const struct adagp_program program = {
        .memory_base = TRAINING_MEMORY_BASE,
        .memory_bytes = TRAINING_MEMORY_BYTES,
        .program_offset = TRAINING_PROGRAM_OFFSET,
        .program_bytes = TRAINING_PROGRAM_BYTES,
        .watchdog_cycles = WATCHDOG_CYCLES,
    };
    for (size_t i = 0; i < LENGTH(training_inputs); i++) {
        put(bone, training_inputs[i].offset, inputs, training_inputs[i].bytes);
        inputs += training_inputs[i].bytes;
    }
    adagp_start(device, &program);
    if (adagp_wait(device, POLLS) != ADAGP_RESULT_DONE) {
        struct adagp_error error = adagp_read_error(device);
        printf("error %d of unit %d at 0x%llx\n", (int)error.code, (int)error.unit,
               (unsigned long long)error.address);
        fail("the batch did not end well");
    }
    uint8_t data[4];
    get(bone, TRAINING_LOSS_OFFSET, data, sizeof data);
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

int main(int argc, char **argv)
{
    static uint8_t memory[TRAINING_MEMORY_BYTES], expected[TRAINING_MEMORY_BYTES];
    static uint8_t batches[TRAINING_BATCHES * TRAINING_BATCH_BYTES];
    if (argc < 3 || argc > 4)
        fail("usage: train PORT DIRECTORY [SECONDS]");
    read_file(argv[2], "memory.bin", memory, sizeof memory);
    read_file(argv[2], "batches.bin", batches, sizeof batches);
    read_file(argv[2], "expected.bin", expected, sizeof expected);

    struct uartbone bone = uartbone_open(argv[1], argc > 3 ? 1000 * atoi(argv[3]) : 1000);
    require(&bone);
    const struct adagp device = {read_register, write_register, &bone};
    find_board(&bone, &device);
    put(&bone, 0, memory, sizeof memory);
    for (size_t i = 0; i < LENGTH(training_registers); i++)
        write_register(&bone, training_registers[i].offset, training_registers[i].value);

    unsigned wrong_losses = 0, wrong = 0, compared = 0;
    for (unsigned i = 0; i < TRAINING_BATCHES; i++) {
        uint32_t bits = train(&bone, &device, batches + i * TRAINING_BATCH_BYTES);
        float loss;
        memcpy(&loss, &bits, sizeof loss);
        wrong_losses += bits != training_losses[i];
        printf("batch %u: loss %.4f\n", i + 1, loss);
        fflush(stdout);
    }
    for (size_t i = 0; i < LENGTH(training_learned); i++) {
        uint32_t offset = training_learned[i].offset, count = training_learned[i].bytes;
        get(&bone, offset, memory + offset, count);
        for (uint32_t j = offset; j < offset + count; j++)
            wrong += memory[j] != expected[j];
        compared += count;
    }
    printf("%s %u of %u bytes that were learned and %u of %u losses differ from golden\n",
           wrong || wrong_losses ? "FAIL" : "PASS", wrong, compared, wrong_losses,
           TRAINING_BATCHES);
    return wrong || wrong_losses;
}
