// A small AXI4 memory for examples, in plain Verilog: one read burst and one write burst at a time.
//
// - Words of the bus's width, from address 0 on; an address behind the last word answers DECERR.
// - Bursts are INCR and as wide as the bus, which is all that the accelerator sends.
// - MEMORY_FILE is read by $readmemh before the simulation starts, from word FIRST_WORD on.
module axi_memory #(
    parameter DATA_WIDTH = 64,
    parameter ADDRESS_WIDTH = 32,
    parameter ID_WIDTH = 1,
    parameter WORDS = 1024,
    parameter SHIFT = 3,  // log2 of the bytes in a word
    parameter FIRST_WORD = 0,
    parameter MEMORY_FILE = "memory.hex"
) (
    input wire clk,
    input wire rst,

    input wire [ID_WIDTH-1:0] awid,
    input wire [ADDRESS_WIDTH-1:0] awaddr,
    input wire awvalid,
    output wire awready,
    input wire [DATA_WIDTH-1:0] wdata,
    input wire [DATA_WIDTH/8-1:0] wstrb,
    input wire wlast,
    input wire wvalid,
    output wire wready,
    output reg [ID_WIDTH-1:0] bid,
    output reg [1:0] bresp,
    output reg bvalid,
    input wire bready,

    input wire [ID_WIDTH-1:0] arid,
    input wire [ADDRESS_WIDTH-1:0] araddr,
    input wire [7:0] arlen,
    input wire arvalid,
    output wire arready,
    output reg [ID_WIDTH-1:0] rid,
    output wire [DATA_WIDTH-1:0] rdata,
    output wire [1:0] rresp,
    output wire rlast,
    output reg rvalid,
    input wire rready
);
    parameter [1:0] OKAY = 2'b00, DECERR = 2'b11;
    parameter [ADDRESS_WIDTH-1:0] LENGTH = WORDS;
    parameter [ADDRESS_WIDTH-1:0] ONE = 1;

    // Words in the window that the program may touch, and behind it.
    reg [DATA_WIDTH-1:0] words [0:WORDS-1];
    initial $readmemh(MEMORY_FILE, words, FIRST_WORD);

    // Reads: rvalid stays high from the acceptance of an address to the last beat.
    reg [ADDRESS_WIDTH-1:0] read_word;
    reg [7:0] read_left;
    wire read_exists = read_word < LENGTH;
    assign arready = !rvalid;
    assign rdata = read_exists ? words[read_word] : {DATA_WIDTH{1'b0}};
    assign rresp = read_exists ? OKAY : DECERR;
    assign rlast = read_left == 8'd0;
    always @(posedge clk)
        if (rst) rvalid <= 1'b0;
        else if (!rvalid) begin
            rvalid <= arvalid;
            rid <= arid;
            read_word <= araddr >> SHIFT;
            read_left <= arlen;
        end else if (rready) begin
            rvalid <= !rlast;
            read_word <= read_word + ONE;
            read_left <= read_left - 8'd1;
        end

    // Writes: an address, its beats, the response.
    reg writing;
    reg [ADDRESS_WIDTH-1:0] write_word;
    wire write_exists = write_word < LENGTH;
    assign awready = !writing && !bvalid;
    assign wready = writing;
    integer i;
    always @(posedge clk)
        if (rst) begin
            writing <= 1'b0;
            bvalid <= 1'b0;
        end else if (writing) begin
            if (wvalid) begin
                for (i = 0; i < DATA_WIDTH / 8; i = i + 1)
                    if (wstrb[i] && write_exists) words[write_word][8*i +: 8] <= wdata[8*i +: 8];
                if (!write_exists) bresp <= DECERR;
                write_word <= write_word + ONE;
                writing <= !wlast;
                bvalid <= wlast;
            end
        end else if (bvalid) bvalid <= !bready;
        else begin
            writing <= awvalid;
            bid <= awid;
            bresp <= OKAY;
            write_word <= awaddr >> SHIFT;
        end
endmodule
