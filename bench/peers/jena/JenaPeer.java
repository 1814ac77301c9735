import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.stream.JsonWriter;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.jena.graph.Graph;
import org.apache.jena.graph.GraphMemFactory;
import org.apache.jena.graph.Node;
import org.apache.jena.graph.NodeFactory;
import org.apache.jena.riot.Lang;
import org.apache.jena.riot.RDFParser;
import org.apache.jena.riot.out.NodeFmtLib;
import org.apache.jena.riot.system.StreamRDFLib;
import org.apache.jena.sparql.core.DatasetGraph;
import org.apache.jena.sparql.core.DatasetGraphFactory;
import org.apache.jena.sparql.core.Var;
import org.apache.jena.sparql.engine.binding.Binding;
import org.apache.jena.sparql.exec.QueryExec;
import org.apache.jena.sparql.exec.RowSet;
import org.apache.jena.sys.JenaSystem;

/** Apache Jena's ARQ behind the JSON lines of README.md, over plain graphs in memory that compare terms as SPARQL does. */
public class JenaPeer {
    private final Graph stored = GraphMemFactory.createGraphMem2();
    private final DatasetGraph dataset = DatasetGraphFactory.createGeneral(stored);

    public static void main(String[] arguments) throws IOException {
        JenaSystem.init();
        JenaPeer peer = new JenaPeer();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Writer out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonWriter answer = new JsonWriter(out);
            answer.setHtmlSafe(false);
            answer.setSerializeNulls(true);
            try {
                peer.answer(JsonParser.parseString(line).getAsJsonObject(), answer);
            } catch (RuntimeException error) {  // a query that does not parse, for instance
                answer.beginObject().name("error").value(String.valueOf(error.getMessage())).endObject();
            }
            out.write('\n');
            out.flush();
        }
    }

    /** Does what a message says. Writes only when nothing can fail any more but the pipe. */
    private void answer(JsonObject message, JsonWriter out) throws IOException {
        String doing = message.get("do").getAsString();
        switch (doing) {
            case "hello" -> {
                String version = QueryExec.class.getPackage().getImplementationVersion();
                out.beginObject().name("name").value("jena").name("version").value(version).endObject();
            }
            case "load" -> {
                RDFParser.source(message.get("path").getAsString()).lang(Lang.NTRIPLES).parse(StreamRDFLib.graph(stored));
                out.beginObject().endObject();
            }
            case "window" -> {
                window(message.getAsJsonObject("graphs"));
                out.beginObject().endObject();
            }
            case "select" -> writeRows(message.get("query").getAsString(), out);
            default -> throw new IllegalArgumentException("expected hello, load, window or select, found " + doing);
        }
    }

    private void window(JsonObject graphs) {
        List<Node> before = new ArrayList<>();
        dataset.listGraphNodes().forEachRemaining(before::add);
        before.forEach(dataset::removeGraph);
        for (Map.Entry<String, JsonElement> one : graphs.entrySet()) {
            Graph graph = GraphMemFactory.createGraphMem2();
            RDFParser.fromString(one.getValue().getAsString(), Lang.NTRIPLES).parse(StreamRDFLib.graph(graph));
            dataset.addGraph(NodeFactory.createURI(one.getKey()), graph);
        }
    }

    private void writeRows(String query, JsonWriter out) throws IOException {
        List<String[]> rows = new ArrayList<>();
        try (QueryExec execution = QueryExec.dataset(dataset).query(query).build()) {
            RowSet found = execution.select();
            List<Var> variables = found.getResultVars();
            while (found.hasNext()) {
                Binding binding = found.next();
                String[] row = new String[variables.size()];
                for (int place = 0; place < row.length; place++) {
                    Node term = binding.get(variables.get(place));
                    row[place] = term == null ? null : NodeFmtLib.strNT(term);
                }
                rows.add(row);
            }
        }
        out.beginObject().name("rows").beginArray();
        for (String[] row : rows) {
            out.beginArray();
            for (String term : row) {
                out.value(term);
            }
            out.endArray();
        }
        out.endArray().endObject();
    }
}
